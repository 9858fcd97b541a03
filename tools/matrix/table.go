package matrix

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Files with results in the directory of documents, and the lines of the document between which the tables are.
const (
	resultsFile  = "compatibility.json"
	documentFile = "compatibility.md"
	begin        = "<!-- written by make matrix: begin -->\n"
	end          = "<!-- written by make matrix: end -->\n"
)

// Load reads the results of earlier runs from the directory of documents. There may be none.
func Load(docs string) ([]Result, error) {
	data, err := os.ReadFile(filepath.Join(docs, resultsFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var results []Result
	if err == nil {
		err = json.Unmarshal(data, &results)
	}
	return results, err
}

// Save writes results, and the tables in the document.
func Save(docs string, results []Result) error {
	data, err := json.MarshalIndent(results, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(docs, resultsFile), append(data, '\n'), 0o600); err != nil {
		return err
	}
	path := filepath.Join(docs, documentFile)
	document, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	written, err := insert(string(document), Table(results))
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return os.WriteFile(path, []byte(written), 0o600)
}

// insert replaces what is between the marks of a document.
func insert(document, table string) (string, error) {
	head, rest, ok := strings.Cut(document, begin)
	_, tail, also := strings.Cut(rest, end)
	if !ok || !also {
		return "", fmt.Errorf("no lines %q and %q", strings.TrimSpace(begin), strings.TrimSpace(end))
	}
	return head + begin + table + end + tail, nil
}

// Table is the results as they stand in the document: a line for each row, which names the tests that did not pass.
func Table(results []Result) string {
	var b strings.Builder
	b.WriteString("\n| Kubernetes | OLM | Result | Date | Commit | Tests took | Machine |\n|---|---|---|---|---|---|---|\n")
	for _, r := range results {
		said := r.Status
		if r.Reason != "" {
			said += ": " + cell(r.Reason)
		}
		for _, test := range r.Tests {
			if test.Status != "pass" {
				said += fmt.Sprintf("; `%s`: %s", test.Name, test.Status)
			}
		}
		took := ""
		if r.Seconds > 0 {
			took = (time.Duration(r.Seconds) * time.Second).String()
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s |\n", r.Kubernetes, r.OLM, said, r.Date, r.Revision, took,
			r.Machine)
	}
	b.WriteString("\n")
	return b.String()
}

func cell(text string) string {
	return strings.ReplaceAll(strings.ReplaceAll(text, "|", "\\|"), "\n", " ")
}
