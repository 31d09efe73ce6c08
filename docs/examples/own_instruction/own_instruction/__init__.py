"""Operations of one's own for Dovetail's vector unit, a package outside its source."""
