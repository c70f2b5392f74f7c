"""Recovery: settle what dead sessions left behind, with proof, and leave everything else alone."""
