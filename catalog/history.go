package catalog

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// maxPolls bounds the polls of a History.
const maxPolls = 32

// History is what the images of a catalog changed, one after the other. It is immutable.
type History struct {
	// Polls are oldest first. The first has no image before it, unless older ones were merged into it.
	Polls []Poll `json:"polls"`
	// Seen is when versions were first offered, for the packages that policies ask about.
	Seen Seen `json:"seen,omitempty"`
}

// With returns the history with one more poll. If there are too many, the two oldest become one, so that no jump is
// forgotten.
func (h *History) With(p Poll) *History {
	next := &History{}
	if h != nil {
		next.Polls, next.Seen = slices.Clone(h.Polls), h.Seen
	}
	if next.Polls = append(next.Polls, p); len(next.Polls) > maxPolls {
		merged := merge(next.Polls[0], next.Polls[1])
		next.Polls = append([]Poll{merged}, next.Polls[2:]...)
	}
	return next
}

// merge returns a poll that jumps if one of two does.
func merge(older, newer Poll) Poll {
	most := newer
	if older.Changed > newer.Changed {
		most = older
	}
	most.Image, most.From = newer.Image, older.From
	most.Backwards, most.Foreign = older.Backwards+newer.Backwards, older.Foreign+newer.Foreign
	most.BackwardsExamples = firstOf(older.BackwardsExamples, newer.BackwardsExamples)
	most.ForeignExamples = firstOf(older.ForeignExamples, newer.ForeignExamples)
	return most
}

func firstOf(a, b []string) []string {
	all := slices.Concat(a, b)
	return all[:min(len(all), maxExamples)]
}

// Newest returns the digest of the last image that was compared; "" if none was.
func (h *History) Newest() string {
	if h == nil || len(h.Polls) == 0 {
		return ""
	}
	return h.Polls[len(h.Polls)-1].Image
}

// Jump returns, in words, the last jump since the last accepted image; "" if there is none.
func (h *History) Jump(maxChanged int, accepted []string) string {
	if h == nil {
		return ""
	}
	for _, p := range slices.Backward(h.Polls) {
		if slices.Contains(accepted, p.Image) {
			return ""
		}
		if jump := p.jump(maxChanged); jump != "" {
			return jump
		}
	}
	return ""
}

// jump returns why a poll is a jump, or "".
func (p *Poll) jump(maxChanged int) string {
	var parts []string
	if p.Backwards > 0 {
		parts = append(parts, "it moved "+counted(p.Backwards, "channel")+" backwards ("+
			examples(p.BackwardsExamples, p.Backwards)+")")
	}
	if p.Foreign > 0 {
		parts = append(parts, "it offers "+counted(p.Foreign, "version")+" for another platform ("+
			examples(p.ForeignExamples, p.Foreign)+")")
	}
	if p.Changed > maxChanged {
		parts = append(parts, fmt.Sprintf("it changed %d of %d packages, more than %d (%s)", p.Changed, p.Packages,
			maxChanged,
			examples(p.ChangedExamples, p.Changed)))
	}
	return strings.Join(parts, " and ")
}

func counted(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return strconv.Itoa(n) + " " + what
}

// examples joins examples, and states how many more there are.
func examples(list []string, of int) string {
	text := strings.Join(list, "; ")
	if more := of - len(list); more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return text
}
