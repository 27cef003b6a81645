"""How property tests run here: without deadlines, because shared machines stall for reasons of their own."""

from hypothesis import HealthCheck, settings

settings.register_profile("superinfer", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("superinfer")
