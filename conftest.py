"""The root of the tests: names the plugins of ours that every test runs with."""

pytest_plugins = ["tests.support.require"]
