"""Kills processes of a serving machine at random points, and counts what clients notice."""
