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

// maxCrashBytes bounds where Crash looks: all goroutines may be dumped.
const maxCrashBytes = 4 << 20

// File returns up to lines lines from the end of the file at path, indented so that they stand out in an error message.
// A file that cannot be read is described instead: callers are already reporting another failure.
func File(path string, lines int) string {
	text, err := read(path, maxBytes)
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

// Crash returns the first lines of what the Go runtime wrote to the file when the program crashed, indented like File; "" where it
// wrote nothing.
func Crash(path string, lines int) string {
	text, err := read(path, maxCrashBytes)
	if err != nil {
		return ""
	}
	all := strings.Split(text, "\n")
	for i, line := range all {
		if strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ") {
			return "    " + strings.Join(all[i:min(len(all), i+lines)], "\n    ")
		}
	}
	return ""
}

func read(path string, most int64) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	data, err := io.ReadAll(io.NewSectionReader(f, max(0, info.Size()-most), most))
	if err != nil {
		return "", err
	}
	return string(data), nil
}
