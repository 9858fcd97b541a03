// Package cases limits how many generated cases a test tries.
package cases

import (
	"flag"
	"math/rand/v2"
	"slices"
)

// inCI is how many cases a test tries without -long.
const inCI = 200

var long = flag.Bool("long", false, "try all generated cases; without it, 200 for each test")

// Long reports whether the flag -long is set, as make test-long does.
func Long() bool { return *long }

// Of returns how many of n generated cases a test tries: all in the long form, and otherwise at most 200.
func Of(n int) int {
	if *long {
		return n
	}
	return min(n, inCI)
}

// Some returns the cases that a test tries, in their order: all in the long form, and otherwise at most 200, which are
// the same ones in each run.
func Some[T any](all []T) []T {
	chosen := rand.New(rand.NewPCG(1, 2)).Perm(len(all))[:Of(len(all))]
	slices.Sort(chosen)
	some := make([]T, len(chosen))
	for i, at := range chosen {
		some[i] = all[at]
	}
	return some
}
