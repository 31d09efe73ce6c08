"""The functional model's units, one file each; :class:`dovetail.sw.model.model.Model` runs them in order of time."""
