package roster

// String is the state's name, as metrics label it.
func (s State) String() string { return word(s, "", "ready", "draining", "not_ready") }

// String is the reason's name, as metrics label it.
func (r Reason) String() string {
	return word(r, "", "control_plane", "excluded_by_label", "not_selected", "not_found_in_ionos",
		"ambiguous_server", "no_address_on_lan", "ambiguous_address", "outside_subnet",
		"shared_address", "not_resolved_yet", "bad_record")
}

// String is the name of the state of a part.
func (s Sync) String() string { return word(s, "", "synced", "degraded", "unsynced") }

// String is the name of the look.
func (l Look) String() string { return word(l, "none", "light", "full") }

func word[T ~uint8](n T, words ...string) string {
	if int(n) < len(words) {
		return words[n]
	}
	return "unknown"
}
