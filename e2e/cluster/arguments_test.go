package cluster

import (
	"slices"
	"strings"
	"testing"
)

// TestArguments: the harness runs what the chart ships. Each shipped argument is used as it is, or has an override with
// a reason.
func TestArguments(t *testing.T) {
	shipped, err := shippedArguments()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(shipped, "--backstop=enforce") {
		t.Fatalf("the shipped arguments are %q", shipped)
	}
	c, gate := &Cluster{dir: "dir"}, &Gate{webhook: "127.0.0.1:1", metrics: "127.0.0.1:2", health: "127.0.0.1:3"}
	for name, opts := range map[string]GateOptions{
		"what the chart ships": {Loop: true},
		"the gate alone":       {},
		"everything else":      {WithoutBackstop: true, SecureMetrics: true, Reports: true, Loop: true},
	} {
		t.Run(name, func(t *testing.T) {
			opts.OLMIdentity = "system:serviceaccount:elsewhere:olm"
			overrides := c.overrides(gate, &opts)
			args, err := serveArguments(shipped, overrides)
			if err != nil {
				t.Fatal(err)
			}
			overridden := func(arg string) bool {
				return slices.ContainsFunc(overrides,
					func(o override) bool { return strings.HasPrefix(arg, "--"+o.flag+"=") })
			}
			for _, arg := range shipped {
				if used := slices.Contains(args, arg); used == overridden(arg) {
					t.Errorf("%s: used %t, overridden %t", arg, used, overridden(arg))
				}
			}
			if want := opts.WithoutBackstop; slices.Contains(args, "--backstop=enforce") == want {
				t.Errorf("the arguments are %q", args)
			}
		})
	}
}

func TestArgumentsRefused(t *testing.T) {
	shipped := []string{"serve", "--namespace=$(POD_NAMESPACE)", "--log-level=info"}
	for name, overrides := range map[string][]override{
		"what only a pod expands":      nil,
		"an override of nothing":       {{"namespace", "opgate", "no pod"}, {"log-level", "info", "for tests"}},
		"an override without a reason": {{"namespace", "opgate", ""}},
	} {
		if args, err := serveArguments(shipped, overrides); err == nil {
			t.Errorf("%s: the arguments are %q", name, args)
		}
	}
	args, err := serveArguments(shipped, []override{{"namespace", "opgate", "no pod"}})
	if want := []string{"serve", "--log-level=info", "--namespace=opgate"}; err != nil || !slices.Equal(args, want) {
		t.Errorf("got %q, %v; want %q", args, err, want)
	}
}
