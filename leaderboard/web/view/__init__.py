"""What the pages share: URLs, forms, templates, views of data, and caches."""
