package verdict

// PatchOperation is one operation of a JSON patch (RFC 6902).
type PatchOperation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// Patch returns changes as a JSON patch.
func Patch(changes []Change) []PatchOperation {
	operations := make([]PatchOperation, len(changes))
	for i, c := range changes {
		operations[i] = PatchOperation{Op: "add", Path: c.Path, Value: c.Value}
		if c.Remove {
			operations[i] = PatchOperation{Op: "remove", Path: c.Path}
		}
	}
	return operations
}
