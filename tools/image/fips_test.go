package image_test

import (
	"bytes"
	"debug/buildinfo"
	"debug/elf"
	"encoding/binary"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/opgate/opgate/e2e/assets/repo"
	"github.com/opgate/opgate/tools/image"
)

// TestFIPS140 has the server built with the certified Go Cryptographic Module test itself, and refuse to start when one
// byte of the module is another.
func TestFIPS140(t *testing.T) {
	checkout, err := repo.Find()
	if err != nil {
		t.Fatal(err)
	}
	built, err := image.Compile(t.Context(), image.Server, checkout.Root, t.TempDir(), meta.Version, "certified",
		[]v1.Platform{local}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	info, err := buildinfo.ReadFile(built[0].File)
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{"GOFIPS140": "v1.0.0-", "DefaultGODEBUG": "fips140=on"} {
		if !slices.ContainsFunc(info.Settings, func(s debug.BuildSetting) bool {
			return s.Key == key && strings.Contains(s.Value, want)
		}) {
			t.Errorf("the binary was built with %v, want %s=%s among it", info.Settings, key, want)
		}
	}
	if out, err := selfTest(t, built[0].File); err != nil || !strings.Contains(out, "fips140: verified code+data") ||
		!strings.HasSuffix(out, "opgate-server "+meta.Version+"\n") {
		t.Errorf("opgate-server version: %v, prints\n%s\nwant a verified module and the version", err, out)
	}

	data, err := os.ReadFile(built[0].File)
	if err != nil {
		t.Fatal(err)
	}
	data[lastConstant(t, data)] ^= 1
	changed := filepath.Join(t.TempDir(), image.Server)
	if err := os.WriteFile(changed, data, 0o500); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	if out, err := selfTest(t, changed); err == nil || !strings.Contains(out, "fips140: verification mismatch") {
		t.Errorf("with a changed byte in the module: %v, prints\n%s\nwant it to end", err, out)
	}
}

// selfTest runs a server that reports what it verifies.
func selfTest(t *testing.T, file string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), file, "version")
	cmd.Env = append(os.Environ(), "GODEBUG=fips140=debug")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// lastConstant is where in a program the last byte of the module's constants is, by what the linker recorded for the
// module's own verification.
func lastConstant(t *testing.T, program []byte) uint64 {
	t.Helper()
	file, err := elf.NewFile(bytes.NewReader(program))
	if err != nil {
		t.Fatal(err)
	}
	section := file.Section(".go.fipsinfo")
	if section == nil {
		t.Fatal("the linker recorded no module")
	}
	var recorded struct {
		Magic    [16]byte
		Sum      [32]byte
		Self     uint64
		Sections [4]struct{ Start, End uint64 } // text, constants, data without pointers, data
	}
	if err := binary.Read(section.Open(), file.ByteOrder, &recorded); err != nil {
		t.Fatal(err)
	}
	last := recorded.Sections[1].End - 1
	for _, segment := range file.Progs {
		if segment.Type == elf.PT_LOAD && segment.Vaddr <= last && last < segment.Vaddr+segment.Filesz {
			return last - segment.Vaddr + segment.Off
		}
	}
	t.Fatalf("no segment holds address %x", last)
	return 0
}
