package explore

import "slices"

// shrink returns the shortest script that it finds for which fails still returns true: it leaves out ever smaller
// parts. Fails is
// called at most so many times.
func shrink(script []action, most int, fails func([]action) bool) []action {
	for size := len(script) / 2; size > 0; {
		shorter := false
		for at := 0; at < len(script) && most > 0; {
			without := slices.Delete(slices.Clone(script), at, min(at+size, len(script)))
			most--
			if len(without) > 0 && fails(without) {
				script, shorter = without, true
			} else {
				at += size
			}
		}
		if !shorter || size > 1 {
			size /= 2
		}
	}
	return script
}
