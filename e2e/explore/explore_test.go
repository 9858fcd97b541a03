package explore

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/opgate/opgate/e2e/cluster"
	"github.com/opgate/opgate/e2e/harness"
	"github.com/opgate/opgate/e2e/olm"
)

// usualSeed is that of the walk that always runs. In it users edit, move and delete policies, approve plans by hand, and
// restart Opgate.
const usualSeed = 7

var (
	walks  = flag.Int("walks", 1, "number of walks")
	seed   = flag.Uint64("seed", usualSeed, "seed of the first walk, each later one has the next")
	length = flag.Int("actions", 15, "number of actions of a walk")
	limit  = flag.Duration("deadline", harness.WaitTimeout, "time to meet the invariants, on a machine of usual speed")
)

// TestExplore plays walks that seeds choose and, without other seeds, a script of testdata; with -long all of them. Its
// cluster is its own, since it restarts OLM and Opgate.
func TestExplore(t *testing.T) {
	t.Parallel()
	x := start(t)
	tests := map[string]func(*testing.T){}
	for i := range *walks {
		s := *seed + uint64(i)
		tests[fmt.Sprintf("seed=%d", s)] = func(t *testing.T) { x.explore(t, s) }
	}
	paths := []string{"testdata/approval-restored.txt"}
	switch {
	case *harness.Long:
		var err error
		if paths, err = filepath.Glob("testdata/*.txt"); err != nil {
			t.Fatal(err)
		}
	case *seed != usualSeed:
		paths = nil
	}
	for _, path := range paths {
		tests[strings.TrimSuffix(filepath.Base(path), ".txt")] = func(t *testing.T) { x.replay(t, path) }
	}
	harness.Together(t, tests)
}

// explore plays the walk of a seed.
func (x *explorer) explore(t *testing.T, seed uint64) {
	script := generate(seed, *length)
	if err := x.play(t.Context(), script, t.Logf); err != nil {
		t.Errorf("%v\nreplay it with: go test ./explore -run '^TestExplore$' -args -walks=1 -seed=%d -actions=%d\n%s",
			err, seed, *length, format(script))
	}
}

// replay plays a script.
func (x *explorer) replay(t *testing.T, path string) {
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	script, err := parse(string(text))
	if err == nil {
		err = x.play(t.Context(), script, t.Logf)
	}
	if err != nil {
		t.Error(err)
	}
}

// start starts a cluster with OLM, its catalog, and Opgate with the loop.
func start(t *testing.T) *explorer {
	t.Helper()
	x := &explorer{OLMEnv: &harness.OLMEnv{Env: harness.StartWithoutGate(t)}, turns: make(chan struct{}, atOnce)}
	var err error
	if x.Gate, err = x.StartOpgate(t.Context(), cluster.GateOptions{Loop: true}); err != nil {
		t.Fatal(err)
	}
	if x.OLM, err = olm.Start(t.Context(), x.Cluster,
		olm.Options{Packages: []olm.Package{graph, other}, Log: os.Stderr}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := x.OLM.Stop(); err != nil {
			t.Error(err)
		}
	})
	if x.address, err = x.catalogAddress(t.Context()); err != nil {
		t.Fatal(err)
	}
	return x
}

// catalogAddress is where the catalog is served. Each walk has a CatalogSource of its own for it.
func (x *explorer) catalogAddress(ctx context.Context) (string, error) {
	source, err := x.Clients[cluster.Admin].Of(harness.Named("CatalogSource", cluster.OLMNamespace, "")).
		Get(ctx, olm.Catalog, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	address, _, _ := unstructured.NestedString(source.Object, "spec", "address")
	if address == "" {
		return "", errors.New("the catalog has no address: " + strconv.Quote(olm.Catalog))
	}
	return address, nil
}
