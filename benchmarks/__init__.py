"""What pystream costs, as ratios between rows of one interleaved run: `hatch run bench`."""
