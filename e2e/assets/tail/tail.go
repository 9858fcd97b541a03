// Package tail quotes the end of a log in an error.
package tail

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/opgate/opgate/internal/text"
)

const (
	// maxBytes bounds what is read from the end of a file; a log may be of any size.
	maxBytes = 64 << 10
	// maxLine bounds a line, in bytes: components log whole objects.
	maxLine = 300
)

// File returns up to lines lines from the end of the file at path, indented so that they stand out in an error message,
// and long ones truncated. A file that cannot be read is described instead: callers are already reporting another
// failure.
func File(path string, lines int) string {
	log, err := read(path)
	if err != nil {
		return fmt.Sprintf("    (%v)", err)
	}
	log = strings.TrimRight(log, "\n")
	if log == "" {
		return "    (no output)"
	}
	all := strings.Split(log, "\n")
	if len(all) > lines {
		all = all[len(all)-lines:]
	}
	for i, line := range all {
		if len(line) > maxLine {
			all[i] = text.Truncate(line, maxLine)
		}
	}
	return "    " + strings.Join(all, "\n    ")
}

func read(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	data, err := io.ReadAll(io.NewSectionReader(f, max(0, info.Size()-maxBytes), maxBytes))
	if err != nil {
		return "", err
	}
	return string(data), nil
}
