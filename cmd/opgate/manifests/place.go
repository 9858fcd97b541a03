package manifests

import (
	"fmt"
	"strconv"

	"github.com/opgate/opgate/cmd/opgate/cli"
	"github.com/opgate/opgate/internal/text"
)

// Place is where an object is written.
type Place struct {
	// File is the path as it was given, or cli.StandardInput.
	File string
	// Kustomization is the directory of the kustomization that built the object; else empty.
	Kustomization string
	// Via is what the object is in, and what applies it: ", in SelectorSyncSet s".
	Via string
	// document counts from 1 in the file; 0 where the problem is the file itself.
	document int
	// Line counts from 1 in the file; 0 where it is unknown.
	Line int
}

// String is the place as problems name it: "plans.yaml: document 2, line 14".
func (p Place) String() string {
	s := text.Escape(DisplayFile(p.File))
	if p.Kustomization != "" && p.Kustomization != p.File {
		s += " (built by " + text.Escape(p.Kustomization) + ")"
	}
	switch {
	case p.document > 0:
		return fmt.Sprintf("%s: document %d, line %d", s, p.document, p.Line)
	case p.Line > 0:
		return fmt.Sprintf("%s: line %d", s, p.Line)
	}
	return s
}

// Short is the place as verdicts name it: "plans.yaml:14".
func (p Place) Short() string {
	s := DisplayFile(p.File)
	if p.Line > 0 {
		s += ":" + strconv.Itoa(p.Line)
	}
	if p.Kustomization != "" && p.Kustomization != p.File {
		s += ", built by " + p.Kustomization
	}
	return text.Escape(s + p.Via)
}

func (p Place) at(line int) Place {
	p.Line = line
	return p
}

// DisplayFile returns the name of a file for people.
func DisplayFile(name string) string {
	if name == cli.StandardInput {
		return "stdin"
	}
	return name
}

// Problem is what cannot be read, built or understood. All else is judged.
type Problem struct {
	Place
	Text string
	// Operators is set for a problem that concerns operators, or may.
	Operators bool
	// hides is set for one that may be about what others are judged by: what would be allowed is not judged.
	hides bool
}

func (p Problem) String() string { return p.Place.String() + ": " + text.Escape(p.Text) }

// Note is what is said besides verdicts and problems.
type Note struct {
	// Warning is set for what may be a mistake.
	Warning bool
	// Place is where it is; the zero value if that is no place in the input.
	Place
	// Text is one sentence.
	Text string
}

// String is the note as it is printed.
func (n Note) String() string {
	s := n.Text
	if n.File != "" {
		s = n.Place.String() + ": " + s
	}
	if n.Warning {
		s = "warning: " + s
	}
	return text.Escape(s)
}
