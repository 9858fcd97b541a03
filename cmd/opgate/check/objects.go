package check

import (
	"fmt"
	"io"

	"github.com/opgate/opgate/cmd/opgate/cli"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
	"github.com/opgate/opgate/rules/state"
	"github.com/opgate/opgate/snapshot"
)

// Objects are the objects of files, as another command reads them.
type Objects struct {
	// Plans are the InstallPlans, in the order of the input.
	Plans []*olm.InstallPlan
	// Changes is what they change.
	Changes rules.Changes
	// Snapshot is a cluster that holds them.
	*snapshot.Snapshot
}

// ReadObjects reads files, directories or "-", standard input, as `opgate check` does, but builds no kustomization and skips no directory:
// what is compared are objects of a cluster. What it cannot use it prints, and returns an error with an exit code; documents that are no
// objects are skipped and counted on stderr. Of namespace are objects that name none.
func ReadObjects(files []string, namespace string, stdin io.Reader, stderr io.Writer) (*Objects, error) {
	search, err := newSearch(true, nil)
	if err != nil {
		return nil, err
	}
	gathered := gather(files, stdin, search)
	documents, problems := allDocuments(gathered.inputs)
	m := loadDocuments(documents, namespace, false)
	if problems = append(append(gathered.problems, problems...), m.problems...); len(problems) > 0 {
		if err := printProblems(stderr, problems); err != nil {
			return nil, fmt.Errorf("write problems: %w", err)
		}
		return nil, &cli.ExitError{Code: exitUnusable, Message: counted(len(problems), "problem") + " in the input"}
	}
	if left := (skipped{documents: len(m.foreign)}); left.documents > 0 {
		fmt.Fprintln(stderr, "skipped: "+left.String())
	}
	o := &Objects{Changes: m.files.Changes, Snapshot: inFiles(m, state.Cluster{})}
	for _, object := range m.objects {
		if object.plan != nil {
			o.Plans = append(o.Plans, object.plan)
		}
	}
	return o, nil
}
