// Package helmchart packages Opgate's chart for a release, with the real helm.
package helmchart

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	sigsyaml "sigs.k8s.io/yaml"
)

// Options say what a packaged chart differs in from its sources.
type Options struct {
	// Version is the chart's, without v, AppVersion the tag of the image.
	Version, AppVersion string
	// ImageDigest is the digest of the image, which becomes the default of the value image.digest: what is installed is
	// then the image that was signed, whatever becomes of the tag.
	ImageDigest string
	// Annotations are added to Chart.yaml.
	Annotations map[string]string
	// Created is the time of all files in the package, and of the package. The same sources make the same package.
	Created time.Time
}

// Helm is the real helm.
type Helm struct {
	// Path is the executable.
	Path string
}

// Package packages the chart in dir into outDir and returns the path of the archive.
func (h Helm) Package(ctx context.Context, dir, outDir string, opts Options) (string, error) {
	temp, err := os.MkdirTemp("", "opgate-chart-*")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(temp) }()
	sources := filepath.Join(temp, "opgate") // helm wants the name of the chart
	if err := os.CopyFS(sources, os.DirFS(dir)); err != nil {
		return "", fmt.Errorf("copy the chart: %w", err)
	}
	if err := complete(sources, opts); err != nil {
		return "", fmt.Errorf("chart %s: %w", dir, err)
	}
	if err := h.run(ctx, "package", sources, "--destination", outDir, "--version", opts.Version, "--app-version",
		opts.AppVersion); err != nil {
		return "", err
	}
	file := filepath.Join(outDir, "opgate-"+opts.Version+".tgz")
	return file, errors.Join(os.Chmod(file, 0o644), os.Chtimes(file, opts.Created, opts.Created)) //nolint:gosec // made to be published
}

// run runs helm without settings of the user.
func (h Helm) run(ctx context.Context, args ...string) error {
	home, err := os.MkdirTemp("", "opgate-helm-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(home) }()
	cmd := exec.CommandContext(ctx, h.Path, args...)
	cmd.Env = []string{"HOME=" + home, "PATH=" + os.Getenv("PATH"), "TMPDIR=" + os.TempDir()}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("helm %s: %w: %s", args[0], errors.Join(err, ctx.Err()), strings.TrimSpace(string(out)))
	}
	return nil
}

// complete changes the sources of a chart to those of a release.
func complete(dir string, opts Options) error {
	definitions, err := definitions(filepath.Join(dir, "files", "crds"))
	if err != nil {
		return err
	}
	err = edit(filepath.Join(dir, "Chart.yaml"), func(text []byte) ([]byte, error) {
		return annotate(text, definitions, opts.Annotations)
	})
	if err != nil {
		return err
	}
	err = edit(filepath.Join(dir, "values.yaml"), func(text []byte) ([]byte, error) {
		return setString(text, opts.ImageDigest, "image", "digest")
	})
	if err != nil {
		return err
	}
	// helm packs files with the times that they have.
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Chtimes(path, opts.Created, opts.Created)) //nolint:gosec // a copy of the chart that this process made
	})
}

func edit(file string, change func([]byte) ([]byte, error)) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if text, err = change(text); err != nil {
		return fmt.Errorf("%s: %w", filepath.Base(file), err)
	}
	return os.WriteFile(file, text, 0o600)
}

// annotate adds annotations to the text of a Chart.yaml.
func annotate(text []byte, annotations ...map[string]string) ([]byte, error) {
	var fields map[string]any
	if err := sigsyaml.Unmarshal(text, &fields); err != nil {
		return nil, err
	}
	all, _ := fields["annotations"].(map[string]any)
	if all == nil {
		all = map[string]any{}
	}
	for _, added := range annotations {
		for key, value := range maps.All(added) {
			all[key] = value
		}
	}
	fields["annotations"] = all
	return sigsyaml.Marshal(fields)
}

// setString sets the string at a path of a YAML document and leaves everything else in it as it is, comments with it.
func setString(document []byte, value string, path ...string) ([]byte, error) {
	var root yaml.Node
	if err := yaml.Unmarshal(document, &root); err != nil {
		return nil, err
	}
	at := strings.Join(path, ".")
	node := &root
	if node.Kind == yaml.DocumentNode {
		node = node.Content[0]
	}
	for _, key := range path {
		if node = child(node, key); node == nil {
			return nil, fmt.Errorf("there is no %s", at)
		}
	}
	if node.Kind != yaml.ScalarNode || node.Style != yaml.DoubleQuotedStyle {
		return nil, fmt.Errorf("%s in line %d is not a string in double quotes", at, node.Line)
	}
	lines := bytes.SplitAfter(document, []byte("\n"))
	line := lines[node.Line-1]
	before, after := line[:node.Column-1], line[node.Column-1:]
	end := bytes.IndexByte(after[1:], '"')
	if end < 0 {
		return nil, fmt.Errorf("%s in line %d does not end there", at, node.Line)
	}
	lines[node.Line-1] = fmt.Appendf(nil, "%s%q%s", before, value, after[end+2:])
	return bytes.Join(lines, nil), nil
}

func child(node *yaml.Node, key string) *yaml.Node {
	for i := 0; node.Kind == yaml.MappingNode && i+1 < len(node.Content); i += 2 {
		if node.Content[i].Value == key {
			return node.Content[i+1]
		}
	}
	return nil
}
