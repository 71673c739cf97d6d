"""The root of the tests: names the plugins of ours that every test runs with, and how Hypothesis behaves here."""

from hypothesis import HealthCheck, settings

pytest_plugins = ["tests.support.require"]

# How fast a busy machine draws an example says nothing about the code; a failure prints what repeats it.
settings.register_profile("house", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("house")
