"""Charts of results as SVG. They need neither JavaScript nor an image library.

Elements have classes instead of colours. The style sheet sets the colours of the light and the dark theme.
"""
