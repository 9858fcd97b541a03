package check

import (
	"fmt"
	"strconv"

	"github.com/opgate/opgate/internal/text"
)

// place is where something stands in the input.
type place struct {
	// file is the path as it was given, or standardInput.
	file string
	// kustomization is the directory of the kustomization that made the object of what stands in the file; else empty.
	kustomization string
	// document counts from 1 in the file; 0 where the problem is the file itself.
	document int
	// line counts from 1 in the file; 0 where it is unknown.
	line int
}

// String is the place as errors name it: "plans.yaml: document 2, line 14".
func (p place) String() string {
	s := text.Escape(displayFile(p.file))
	if p.kustomization != "" && p.kustomization != p.file {
		s += " (built by " + text.Escape(p.kustomization) + ")"
	}
	switch {
	case p.document > 0:
		return fmt.Sprintf("%s: document %d, line %d", s, p.document, p.line)
	case p.line > 0:
		return fmt.Sprintf("%s: line %d", s, p.line)
	}
	return s
}

// short is the place as verdicts name it: "plans.yaml:14".
func (p place) short() string {
	s := displayFile(p.file)
	if p.line > 0 {
		s += ":" + strconv.Itoa(p.line)
	}
	if p.kustomization != "" && p.kustomization != p.file {
		s += ", built by " + p.kustomization
	}
	return text.Escape(s)
}

func (p place) at(line int) place {
	p.line = line
	return p
}

// problem is one reason why the input cannot be used.
type problem struct {
	place
	text string
}

func (p problem) String() string { return p.place.String() + ": " + text.Escape(p.text) }

func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}
