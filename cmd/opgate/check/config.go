package check

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	yamltree "go.yaml.in/yaml/v3"

	"github.com/opgate/opgate/cmd/opgate/manifests"
	"github.com/opgate/opgate/rules/verdict"
)

// config is the file that a repository is configured by. It is written by who is judged, so that it can set aside no
// verdict, and what it leaves out is listed.
type config struct {
	// Paths are judged if the command line names none.
	Paths []string `yaml:"paths"`
	// Exclude are patterns of what is left out.
	Exclude []yamltree.Node `yaml:"exclude"`
	// Overlays has, by the directory of a cluster, the directories that are judged together with it.
	Overlays yamltree.Node `yaml:"overlays"`
	// Ignore are warnings that are set aside.
	Ignore []yamltree.Node `yaml:"ignore"`
	// KubernetesVersion and OpenShiftVersion are those of the clusters, unless the command line has some.
	KubernetesVersion string `yaml:"kubernetesVersion"`
	OpenShiftVersion  string `yaml:"openshiftVersion"`
}

// maxConfig is the size in bytes of the largest configuration.
const maxConfig = 1 << 20

// configured is what the configuration adds to the command line.
type configured struct {
	file     string
	exclude  []manifests.Pattern
	overlays []manifests.Pairing
	ignore   []*ignore
}

// configure reads the configuration of the working directory, or the one that --config names with the ignore file
// beside it, so that a pipeline can use those of another branch.
func (o *options) configure() error {
	file := cmp.Or(o.config, manifests.ConfigFile)
	data, err := readConfig(file)
	if err != nil && (o.config != "" || !errors.Is(err, fs.ErrNotExist)) {
		return self.Usage("the configuration cannot be read: %v", err)
	}
	var c config
	if data != nil {
		o.configured.file = filepath.ToSlash(filepath.Clean(file))
		decoder := yamltree.NewDecoder(bytes.NewReader(data))
		decoder.KnownFields(true)
		if err := decoder.Decode(&c); err != nil && !errors.Is(err, io.EOF) {
			return self.Unusable("%s: %s; the fields are exclude, ignore, kubernetesVersion, openshiftVersion, overlays and paths",
				file, worded(err))
		}
		if err := decoder.Decode(&yamltree.Node{}); !errors.Is(err, io.EOF) {
			return self.Unusable("%s: there is more than one document", file)
		}
	}
	if err := o.configured.read(file, &c); err != nil {
		return err
	}
	if err := o.configured.readIgnored(filepath.Join(filepath.Dir(file), manifests.IgnoreFile)); err != nil {
		return err
	}
	if len(o.named()) == 0 && !o.cluster {
		o.files = c.Paths
	}
	if !o.cluster {
		o.versions.openshift = cmp.Or(o.versions.openshift, c.OpenShiftVersion)
		o.versions.kubernetes = cmp.Or(o.versions.kubernetes, c.KubernetesVersion)
	}
	return nil
}

func readConfig(file string) (data []byte, err error) {
	f, err := os.Open(filepath.FromSlash(file))
	if err != nil {
		return nil, err
	}
	data, err = io.ReadAll(io.LimitReader(f, maxConfig+1))
	if err = cmp.Or(err, f.Close()); err == nil && len(data) > maxConfig {
		err = fmt.Errorf("%s is larger than %d bytes", file, maxConfig)
	}
	return data, err
}

var inStruct = regexp.MustCompile(` in type check\.config`)

// worded is the error of the parser, without its name and those of types.
func worded(err error) string {
	s := strings.TrimPrefix(strings.TrimPrefix(err.Error(), "yaml: "), "unmarshal errors:\n")
	return strings.Join(strings.Fields(inStruct.ReplaceAllString(s, "")), " ")
}

func (c *configured) read(file string, from *config) error {
	for _, n := range from.Exclude {
		if n.Kind != yamltree.ScalarNode || n.Value == "" {
			return self.Unusable("%s: line %d: exclude is a list of patterns", file, n.Line)
		}
		c.exclude = append(c.exclude, manifests.Pattern{Text: n.Value, From: file + ":" + strconv.Itoa(n.Line)})
	}
	for i := range from.Ignore {
		n, entry := &from.Ignore[i], struct{ Rule, Object, Until, Reason string }{}
		err := n.Decode(&entry)
		// keys and values
		if err != nil || entry.Object == "" || n.Kind != yamltree.MappingNode || len(n.Content) != 8 {
			return self.Unusable("%s: line %d: what is ignored has a rule, an object, until and a reason", file, n.Line)
		}
		c.ignore = append(c.ignore, &ignore{at: manifests.Place{File: file, Line: n.Line},
			rule:  verdict.RuleID(entry.Rule),
			until: entry.Until, reason: entry.Reason, object: entry.Object})
	}
	of := &from.Overlays
	if of.Kind != 0 && of.Kind != yamltree.MappingNode {
		return self.Unusable("%s: line %d: overlays maps the directory of a cluster to a list of directories", file,
			of.Line)
	}
	known := map[string]int{}
	for i := 0; i+1 < len(of.Content); i += 2 {
		key, value := of.Content[i], of.Content[i+1]
		var with []string
		if err := value.Decode(&with); err != nil || len(with) == 0 || key.Kind != yamltree.ScalarNode {
			return self.Unusable("%s: line %d: overlays: %s needs a list of directories", file, key.Line, key.Value)
		}
		p := manifests.Pairing{Dir: path.Clean(key.Value), From: manifests.Place{File: file, Line: key.Line}}
		if first := known[p.Dir]; first > 0 {
			return self.Unusable("%s: line %d: overlays: %s is defined twice, first on line %d", file, key.Line,
				key.Value, first)
		}
		known[p.Dir] = key.Line
		for _, dir := range with {
			p.With = append(p.With, path.Clean(dir))
		}
		c.overlays = append(c.overlays, p)
	}
	return nil
}

// readIgnored reads patterns, one on each line; those that begin with # are comments.
func (c *configured) readIgnored(file string) error {
	data, err := readConfig(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return self.Usage("the patterns to leave out cannot be read: %v", err)
	}
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, maxConfig+1)
	for n := 1; lines.Scan(); n++ {
		if pattern := strings.TrimSpace(lines.Text()); pattern != "" && !strings.HasPrefix(pattern, "#") {
			c.exclude = append(c.exclude, manifests.Pattern{Text: pattern,
				From: filepath.ToSlash(file) + ":" + strconv.Itoa(n)})
		}
	}
	return lines.Err()
}
