"""How property tests run here: without deadlines, because shared machines stall for reasons of their own."""

from hypothesis import HealthCheck, settings

settings.register_profile("core", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("core")
