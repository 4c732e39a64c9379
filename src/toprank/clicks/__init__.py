"""Labels from behaviour: what users clicked, and what may be learnt from it."""
