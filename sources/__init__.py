"""Whom we ask which targets exist and when they changed: one adapter a provider, listed in ``catalog``."""
