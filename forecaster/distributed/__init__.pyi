from .cluster import Ray as Ray
