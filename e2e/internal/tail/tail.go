// Package tail quotes the end of a log in an error.
package tail

import (
	"fmt"
	"io"
	"os"
	"strings"
)

// maxBytes bounds what is read from the end of a file; a log may be of any size.
const maxBytes = 64 << 10

// File returns up to lines lines from the end of the file at path, indented so that they stand out in an error message.
// A file that cannot be read is described instead: callers are already reporting another failure.
func File(path string, lines int) string {
	text, err := read(path)
	if err != nil {
		return fmt.Sprintf("    (%v)", err)
	}
	text = strings.TrimRight(text, "\n")
	if text == "" {
		return "    (no output)"
	}
	all := strings.Split(text, "\n")
	if len(all) > lines {
		all = all[len(all)-lines:]
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
