package carrier

import "github.com/opgate/opgate/olm"

// AlongRequired traverses from some CSVs to those that they require, and on from each for which enter returns true.
// That must be at most once per CSV, so that cyclic requirements end the traversal instead of the process.
func AlongRequired(csvs []Bundle, queue []int, enter func(i, from int) bool) {
	var offered map[olm.Capability][]int // most plans have one operator, which requires none
	for ; len(queue) > 0; queue = queue[1:] {
		from := queue[0]
		if len(csvs[from].Requires) == 0 {
			continue
		}
		if offered == nil {
			offered = offersOf(csvs)
		}
		asked := map[olm.Capability]bool{}
		for _, required := range csvs[from].Requires {
			if asked[required] {
				continue
			}
			asked[required] = true
			for _, i := range offered[required] {
				if enter(i, from) {
					queue = append(queue, i)
				}
			}
		}
	}
}

// offersOf indexes CSVs by what they provide, each capability once per CSV: bundles may repeat theirs thousands of
// times.
func offersOf(csvs []Bundle) map[olm.Capability][]int {
	offered := map[olm.Capability][]int{}
	for i := range csvs {
		for _, c := range append(csvs[i].Provides[:len(csvs[i].Provides):len(csvs[i].Provides)],
			olm.Capability{Package: csvs[i].Package}) {
			if by := offered[c]; len(by) == 0 || by[len(by)-1] != i {
				offered[c] = append(by, i)
			}
		}
	}
	delete(offered, olm.Capability{}) // an empty capability provides nothing
	return offered
}
