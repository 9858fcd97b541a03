package image_test

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"
	"golang.org/x/mod/modfile"
	"golang.org/x/mod/semver"

	"github.com/opgate/opgate/e2e/assets/repo"
	"github.com/opgate/opgate/tools/image"
)

// readRoot reads a file of the root of the checkout.
func readRoot(t *testing.T, name string) (root string, data []byte) {
	t.Helper()
	checkout, err := repo.Find()
	if err != nil {
		t.Fatal(err)
	}
	data, err = os.ReadFile(filepath.Join(checkout.Root, name))
	if err != nil {
		t.Fatal(err)
	}
	return checkout.Root, data
}

// parseDockerfile reads the Dockerfile as BuildKit does.
func parseDockerfile(t *testing.T) (args map[string]string, build, final instructions.Stage) {
	t.Helper()
	_, data := readRoot(t, "Dockerfile")
	parsed, err := parser.Parse(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	if len(parsed.Warnings) > 0 {
		t.Errorf("the parser warns: %v", parsed.Warnings)
	}
	stages, meta, err := instructions.Parse(parsed.AST, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(stages) != 2 {
		t.Fatalf("there are %d stages, want 2", len(stages))
	}
	args = map[string]string{}
	for _, command := range meta {
		for _, arg := range command.Args {
			args[arg.Key] = arg.ValueString()
		}
	}
	return args, stages[0], stages[1]
}

// of returns the commands of one kind.
func of[T instructions.Command](stage instructions.Stage) []T {
	var found []T
	for _, command := range stage.Commands {
		if c, ok := command.(T); ok {
			found = append(found, c)
		}
	}
	return found
}

func TestDockerfileCompilesAsWeDo(t *testing.T) {
	_, build, _ := parseDockerfile(t)
	_, data := readRoot(t, "go.mod")
	mod, err := modfile.ParseLax("go.mod", data, nil)
	if err != nil {
		t.Fatal(err)
	}
	minor := strings.TrimPrefix(semver.MajorMinor("v"+mod.Go.Version), "v")
	if want := "golang:" + minor; build.BaseName != want || build.Platform != "$BUILDPLATFORM" {
		t.Errorf("it compiles in %s for %s, want %s, of the version in go.mod, for $BUILDPLATFORM", build.BaseName,
			build.Platform, want)
	}
	runs := of[*instructions.RunCommand](build)
	if len(runs) != 2 {
		t.Fatalf("it has %d RUN lines, want the download of modules and the compilation", len(runs))
	}
	compile := strings.Join(runs[1].CmdLine, " ")
	want := []string{
		"CGO_ENABLED=0", "GOOS=$TARGETOS", "GOARCH=$TARGETARCH", "GOFLAGS=-buildvcs=false", "GOAMD64=v1",
		"GOARM64=v8.0", "GOFIPS140=$GOFIPS140",
		"-ldflags", "-o", "/out/opgate-server", "./cmd/opgate-server",
	}
	for _, arg := range image.BuildArgs("$VERSION") {
		if strings.Contains(arg, " ") {
			arg = `"` + arg + `"`
		}
		want = append(want, arg)
	}
	for _, arg := range want {
		if !strings.Contains(" "+compile+" ", " "+arg+" ") {
			t.Errorf("it compiles with %q, want %s in that", compile, arg)
		}
	}
}

func TestDockerfileMakesTheSameImage(t *testing.T) {
	args, _, final := parseDockerfile(t)
	if final.BaseName != "$BASE" || args["BASE"] != image.DefaultBase {
		t.Errorf("the base is %s with BASE=%s, want $BASE and %s", final.BaseName, args["BASE"], image.DefaultBase)
	}

	base, err := image.FindBase(t.Context(), image.Scratch, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	index, err := image.Assemble(base, standIns(t, local), meta)
	if err != nil {
		t.Fatal(err)
	}
	img, err := image.ForPlatform(index, local)
	if err != nil {
		t.Fatal(err)
	}
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	want := config.Config
	if users := of[*instructions.UserCommand](final); len(users) != 1 || users[0].User != want.User {
		t.Errorf("USER is not once %s", want.User)
	}
	if entrypoints := of[*instructions.EntrypointCommand](final); len(entrypoints) != 1 ||
		entrypoints[0].PrependShell ||
		!slices.Equal(entrypoints[0].CmdLine, want.Entrypoint) {
		t.Errorf("ENTRYPOINT is not once %q without a shell", want.Entrypoint)
	}
	if cmds := of[*instructions.CmdCommand](final); len(cmds) != 1 || cmds[0].PrependShell ||
		!slices.Equal(cmds[0].CmdLine, want.Cmd) {
		t.Errorf("CMD is not once %q without a shell", want.Cmd)
	}
	if copies := of[*instructions.CopyCommand](final); len(copies) != 1 || copies[0].From != "build" ||
		copies[0].DestPath != image.Path ||
		copies[0].Chmod != "0555" {
		t.Errorf("COPY is not once of the binary to %s with mode 0555", image.Path)
	}
	if runs := of[*instructions.RunCommand](final); len(runs) > 0 {
		t.Errorf("there is %q, and no shell to run it", runs[0].CmdLine)
	}

	labels := map[string]string{}
	for _, command := range of[*instructions.LabelCommand](final) {
		for _, label := range command.Labels {
			labels[unquote(label.Key)] = unquote(label.Value)
		}
	}
	wantLabels := maps.Clone(want.Labels)
	wantLabels["org.opencontainers.image.version"] = "$VERSION"
	wantLabels["org.opencontainers.image.revision"] = "$REVISION"
	wantLabels["org.opencontainers.image.created"] = "$CREATED"
	if diff := cmp.Diff(wantLabels, labels); diff != "" {
		t.Errorf("labels are not those of make image (-want +got):\n%s", diff)
	}
}

func unquote(s string) string { return strings.Trim(s, `"`) }

// TestDockerContext makes sure that everything that the binary is built from reaches the build, and what is large or
// private does not.
func TestDockerContext(t *testing.T) {
	root, data := readRoot(t, ".dockerignore")
	patterns, err := ignorefile.ReadAll(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	ignore, err := patternmatcher.New(patterns)
	if err != nil {
		t.Fatal(err)
	}
	ignored := func(path string) bool {
		t.Helper()
		match, err := ignore.MatchesOrParentMatches(path)
		if err != nil {
			t.Fatal(err)
		}
		return match
	}
	for _, path := range []string{".git/config", ".local/kubeconfig", "bin/opgate", "e2e/go.mod", "tools/go.mod",
		"bench/go.mod",
		"docs/image.md", "README.md", "rules/rule_test.go"} {
		if !ignored(path) {
			t.Errorf("%s is part of the build", path)
		}
	}

	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-json=Dir,GoFiles,EmbedFiles,Module",
		"./cmd/opgate-server")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	files := []string{"go.mod", "go.sum"}
	for decoder := json.NewDecoder(bytes.NewReader(out)); decoder.More(); {
		var pkg struct {
			Dir                 string
			GoFiles, EmbedFiles []string
			Module              *struct{ Main bool }
		}
		if err := decoder.Decode(&pkg); err != nil {
			t.Fatal(err)
		}
		if pkg.Module == nil || !pkg.Module.Main {
			continue
		}
		for _, file := range slices.Concat(pkg.GoFiles, pkg.EmbedFiles) {
			path, err := filepath.Rel(root, filepath.Join(pkg.Dir, file))
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, filepath.ToSlash(path))
		}
	}
	if len(files) < 20 {
		t.Errorf("go list names only %q", files)
	}
	for _, file := range files {
		if ignored(file) {
			t.Errorf("the binary is built from %s, which .dockerignore keeps away", file)
		}
	}
}
