package release

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// SumsFile is the file with the checksums of all other files, in the form that sha256sum --check reads.
const SumsFile = "SHA256SUMS"

// Sum is a file and its SHA-256 in hexadecimal.
type Sum struct{ File, SHA256 string }

// sumFiles returns the checksums of the files in dir, by name. Directories, the OCI layouts, have digests of their own.
func sumFiles(dir string) ([]Sum, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var sums []Sum
	for _, entry := range entries {
		if !entry.Type().IsRegular() {
			continue
		}
		sum, err := sumFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			return nil, err
		}
		sums = append(sums, Sum{File: entry.Name(), SHA256: sum})
	}
	return sums, nil
}

func sumFile(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	hash := sha256.New()
	if _, err := io.Copy(hash, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}

func formatSums(sums []Sum) string {
	var b strings.Builder
	for _, sum := range sums {
		fmt.Fprintf(&b, "%s  %s\n", sum.SHA256, sum.File)
	}
	return b.String()
}

// ReadSums reads SumsFile in dir.
func ReadSums(dir string) ([]Sum, error) {
	name := filepath.Join(dir, SumsFile)
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var sums []Sum
	for line := range strings.Lines(string(data)) {
		sum, file, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "  ")
		if !ok || len(sum) != 2*sha256.Size || file != filepath.Base(file) {
			return nil, fmt.Errorf("%s: line %q is not a checksum, two spaces and the name of a file", name, line)
		}
		sums = append(sums, Sum{File: file, SHA256: sum})
	}
	return sums, nil
}

// CheckSums compares the files in dir with SumsFile.
func CheckSums(dir string) error {
	sums, err := ReadSums(dir)
	if err != nil {
		return err
	}
	for _, want := range sums {
		got, err := sumFile(filepath.Join(dir, want.File))
		if err != nil {
			return err
		}
		if got != want.SHA256 {
			return fmt.Errorf("%s has the checksum %s, %s says %s", want.File, got, SumsFile, want.SHA256)
		}
	}
	return nil
}
