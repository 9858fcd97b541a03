package plan

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/blang/semver/v4"
	"github.com/operator-framework/operator-registry/alpha/declcfg"
	"github.com/operator-framework/operator-registry/pkg/api"
)

// olmModule is the module with OLM's own resolver.
const olmModule = "../../../e2e/tools/olm"

// question is what the resolver is asked, as in its program.
type question struct {
	Bundles                          []*api.Bundle
	DefaultChannel, Package, Channel string
	From, Version                    string

	catalog string
}

// recorded are the answers of OLM's own resolver: the versions that it installs one after the other, and "error" where it
// resolves nothing.
type recorded struct {
	OLM     string
	Answers []string
}

// TestAsOLM compares the paths through random catalogs, with replaces, skips, skipRange, several channels, deprecations and
// dead ends, with the recorded answers of OLM's resolver. -update asks it again.
func TestAsOLM(t *testing.T) {
	const catalogs = 400
	const file = "testdata/olm.json"
	questions := make([]question, catalogs)
	for seed := range questions {
		questions[seed] = ask(t, rand.New(rand.NewPCG(uint64(seed), 1)))
	}
	pins, err := os.ReadFile(olmModule + "/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	version := regexp.MustCompile(`operator-lifecycle-manager (v\S+)`).FindSubmatch(pins)[1]
	var want recorded
	if *update {
		asked, err := json.Marshal(questions)
		if err != nil {
			t.Fatal(err)
		}
		resolver := exec.CommandContext(t.Context(), "go", "run", "-C", olmModule, "-trimpath", "./resolve")
		resolver.Stdin, resolver.Stderr = bytes.NewReader(asked), os.Stderr
		answers, err := resolver.Output()
		if err != nil {
			t.Fatal(err)
		}
		want.OLM = string(version)
		if err := json.Unmarshal(answers, &want.Answers); err != nil {
			t.Fatal(err)
		}
		content, err := json.MarshalIndent(want, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, append(content, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(content, &want); err != nil {
		t.Fatal(err)
	}
	if want.OLM != string(version) || len(want.Answers) != catalogs {
		t.Fatalf("%s has %d answers of OLM %s, want %d of %s: go test ./cmd/opgate/plan -run TestAsOLM -update", file,
			len(want.Answers), want.OLM, catalogs, version)
	}
	lengths := map[int]int{}
	for seed, q := range questions {
		got := q.path(t)
		lengths[len(strings.Fields(got))]++
		if got != want.Answers[seed] {
			t.Errorf("catalog %d, from %q %s in channel %q: %q, OLM's resolver: %q\n%s", seed, q.From, q.Version, q.Channel, got,
				want.Answers[seed], q.catalog)
		}
	}
	t.Logf("paths by their number of steps: %v", lengths)
	for n := range 4 {
		if lengths[n] < catalogs/40 {
			t.Errorf("%d paths have %d steps: the catalogs show too little", lengths[n], n)
		}
	}
}

// path returns the answer of this package.
func (q *question) path(t *testing.T) string {
	t.Helper()
	o, err := readFiles(t.Context(), writeCatalog(t, q.catalog), q.Package, nil)
	if err != nil {
		t.Fatal(err)
	}
	from := installed{name: q.From}
	if q.From != "" {
		version, err := semver.Parse(q.Version)
		if err != nil {
			t.Fatal(err)
		}
		from.version = &version
	}
	hops, end := o.path(from, q.Channel, "")
	var steps []string
	for _, h := range hops {
		steps = append(steps, h.CSV)
	}
	if strings.HasPrefix(end, "OLM does not order") {
		steps = append(steps, "error")
	}
	return strings.Join(steps, " ")
}

// ask makes a catalog that opm serves, and a Subscription.
func ask(t *testing.T, r *rand.Rand) question {
	t.Helper()
	for range 1000 {
		catalog, channels, versions := randomCatalog(r)
		q := question{catalog: catalog, Package: "etcd"}
		if r.IntN(8) > 0 {
			q.Channel = channels[r.IntN(len(channels))]
		}
		if r.IntN(10) > 0 { // else nothing is installed
			q.Version = versions[r.IntN((len(versions)+1)/2)] // an old one, which has more of a path
			q.From = "etcd.v" + q.Version
		}
		config, err := declcfg.LoadReader(strings.NewReader(catalog))
		if err != nil {
			t.Fatal(err)
		}
		content, err := declcfg.ConvertToModel(*config)
		if err != nil {
			continue // which no catalog is served with
		}
		q.DefaultChannel = content["etcd"].DefaultChannel.Name
		for _, c := range content["etcd"].Channels {
			for _, b := range c.Bundles {
				bundle, err := api.ConvertModelBundleToAPIBundle(*b)
				if err != nil {
					t.Fatal(err)
				}
				q.Bundles = append(q.Bundles, bundle)
			}
		}
		return q
	}
	t.Fatal("no catalog is valid")
	return question{}
}

// randomCatalog returns a catalog, which need not be valid, with its channels and versions, the oldest first. The first
// version is in no channel.
func randomCatalog(r *rand.Rand) (catalog string, channels, versions []string) {
	for major := range 1 + r.IntN(2) {
		for minor := range 1 + r.IntN(4) {
			for patch := range 1 + r.IntN(3) {
				versions = append(versions, fmt.Sprintf("%d.%d.%d", major, minor, patch))
			}
		}
	}
	var b strings.Builder
	write := func(blob any) { _ = json.NewEncoder(&b).Encode(blob) } // a Builder accepts every write
	used := map[string]bool{}
	for i := range 1 + r.IntN(3) {
		c := declcfg.Channel{Schema: declcfg.SchemaChannel, Package: "etcd", Name: []string{"stable", "alpha", "old"}[i]}
		channels = append(channels, c.Name)
		for at, v := range versions[min(1, len(versions)-1):] {
			if r.IntN(4) > 0 || at == 0 {
				c.Entries = append(c.Entries, randomEntry(r, v, c.Entries))
				used[v] = true
			}
		}
		r.Shuffle(len(c.Entries), func(i, j int) { c.Entries[i], c.Entries[j] = c.Entries[j], c.Entries[i] })
		write(c)
	}
	write(declcfg.Package{Schema: declcfg.SchemaPackage, Name: "etcd", DefaultChannel: channels[r.IntN(len(channels))]})
	deprecated := declcfg.Deprecation{Schema: declcfg.SchemaDeprecation, Package: "etcd"}
	for _, v := range versions {
		if !used[v] {
			continue
		}
		fmt.Fprintf(&b, `{"schema":"olm.bundle","package":"etcd","name":"etcd.v%s","image":"quay.io/example/etcd:%s",`+
			`"properties":[{"type":"olm.package","value":{"packageName":"etcd","version":"%s"}}]}`+"\n", v, v, v)
		if r.IntN(5) == 0 {
			deprecated.Entries = append(deprecated.Entries, declcfg.DeprecationEntry{Message: "no more",
				Reference: declcfg.PackageScopedReference{Schema: declcfg.SchemaBundle, Name: "etcd.v" + v}})
		}
	}
	if len(deprecated.Entries) > 0 {
		write(deprecated)
	}
	return b.String(), channels, versions
}

// randomEntry returns a version that mostly follows the one before it.
func randomEntry(r *rand.Rand, version string, before []declcfg.ChannelEntry) declcfg.ChannelEntry {
	e := declcfg.ChannelEntry{Name: "etcd.v" + version}
	earlier := func() string { return before[r.IntN(len(before))].Name }
	if len(before) > 0 {
		e.Replaces = before[len(before)-1].Name
		if r.IntN(4) == 0 {
			e.Replaces = earlier()
		}
		for r.IntN(3) == 0 {
			if skip := earlier(); !slices.Contains(e.Skips, skip) {
				e.Skips = append(e.Skips, skip)
			}
		}
	}
	if r.IntN(12) == 0 {
		e.Replaces = "etcd.v9.9.9" // which the catalog does not have
	}
	if r.IntN(4) == 0 {
		low := strings.TrimPrefix(e.Name, "etcd.v")
		if len(before) > 0 {
			low = strings.TrimPrefix(earlier(), "etcd.v")
		}
		e.SkipRange = fmt.Sprintf(">=%s <%s", low, version)
		if r.IntN(4) == 0 {
			e.SkipRange = "<=" + version // with itself
		}
	}
	return e
}
