package rights

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/opgate/opgate/e2e/cluster"
)

// Variable names the directory in which every test process records the rights that it made Opgate use. Only all of them
// together use all rights, so without it nothing is recorded or checked.
const Variable = "OPGATE_E2E_RIGHTS"

// Record collects the rights that were used. It is safe for concurrent use.
type Record struct {
	mu   sync.Mutex
	used map[Right]bool
}

// Add adds the rights that requests needed.
func (r *Record) Add(requests []cluster.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.used == nil {
		r.used = map[Right]bool{}
	}
	for _, request := range requests {
		r.used[For(request)] = true
	}
}

// Save writes the record into the directory that Variable names, if it is set.
func (r *Record) Save() error {
	dir := os.Getenv(Variable)
	if dir == "" {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	used := make([]Right, 0, len(r.used))
	for right := range r.used {
		used = append(used, right)
	}
	slices.SortFunc(used, func(a, b Right) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	data, err := json.MarshalIndent(used, "", "  ")
	if err != nil {
		return fmt.Errorf("record the rights that were used: %w", err)
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return fmt.Errorf("record the rights that were used: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%d.json", os.Getpid())), data, 0o600); err != nil {
		return fmt.Errorf("record the rights that were used: %w", err)
	}
	return nil
}

// Load returns the rights that all records in a directory have.
func Load(dir string) ([]Right, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, err
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("%s has no records of the rights that were used", dir)
	}
	var all []Right
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		var used []Right
		if err := json.Unmarshal(data, &used); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		all = append(all, used...)
	}
	return all, nil
}
