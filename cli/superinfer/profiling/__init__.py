"""Measures how long steps of a model take on an engine and fits the profile every prediction starts from."""
