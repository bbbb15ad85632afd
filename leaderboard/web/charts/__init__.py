"""Pictures of results as SVG, drawn here so that they need neither JavaScript nor an image library.

They carry no colours: classes do, which the style sheet fills in for light and dark.
"""
