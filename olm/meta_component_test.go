package olm

import (
	"strings"
	"testing"
)

func TestComponent(t *testing.T) {
	for want, c := range map[string][2]string{
		"etcd.shop":                         {"etcd", "shop"},
		"":                                  {"etcd", ""},
		strings.Repeat("a", 60) + ".sh":     {strings.Repeat("a", 60), "shop"},
		strings.Repeat("a", 62):             {strings.Repeat("a", 62), "shop"},
		strings.Repeat("b", 58) + ".s":      {strings.Repeat("b", 58), "s--_.shop"},
		strings.Repeat("c", 58) + ".sho":    {strings.Repeat("c", 58), "sho"},
		strings.Repeat("d", 31) + "." + "e": {strings.Repeat("d", 31), "e" + strings.Repeat("-", 40)},
	} {
		if got := Component(c[0], c[1]); got != want {
			t.Errorf("%s in %s: %q, want %q", c[0], c[1], got, want)
		}
	}
}
