package explain

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/opgate/opgate/cmd/opgate/inspect"
	"github.com/opgate/opgate/internal/text"
)

// otherWebhook is the name of the webhook in the API server's words.
var otherWebhook = regexp.MustCompile(`admission webhook "([^"]+)" denied the request`)

// find returns the rules that one argument stands for: a rule ID, with or without parentheses; the beginning of
// several, such as plan/; or a text that names rules in parentheses. listed is set for a beginning.
func find(list []rule, argument string) (found []rule, listed bool, err error) {
	id := strings.ToLower(strings.TrimSpace(argument))
	id = strings.TrimSuffix(strings.TrimPrefix(id, "("), ")")
	if found = withID(list, id); len(found) > 0 {
		return found, false, nil
	}
	for _, r := range list {
		if id == r.kind() || id+"/" == r.kind() || strings.Contains(id, "/") && strings.HasPrefix(string(r.ID), id) {
			found = append(found, r)
		}
	}
	if len(found) > 0 {
		return found, true, nil
	}
	if !strings.ContainsAny(strings.TrimSpace(argument), " \t\n") {
		return nil, false, unknown(list, id)
	}
	found, err = mentioned(list, argument)
	return found, false, err
}

// withID returns the rule with an ID, or those that an earlier ID stands for.
func withID(list []rule, id string) (found []rule) {
	for _, r := range list {
		if r.named(id) {
			found = append(found, r)
		}
	}
	return found
}

// mentioned returns the rules that a text names in parentheses, in its order.
func mentioned(list []rule, refusal string) (found []rule, err error) {
	kinds := map[string]bool{}
	for _, r := range list {
		kinds[r.kind()] = true
	}
	var wrong []error
	for _, id := range inspect.Mentions(refusal) {
		meant := withID(list, id)
		if len(meant) == 0 && kinds[kindOf(id)] {
			wrong = append(wrong, unknown(list, id))
		}
		for _, r := range meant {
			if len(withID(found, string(r.ID))) == 0 {
				found = append(found, r)
			}
		}
	}
	switch {
	case len(found) > 0:
		return found, nil
	case len(wrong) > 0:
		return nil, errors.Join(wrong...)
	}
	return nil, noneIn(refusal)
}

// noneIn says what was looked for in a text that names no rule, and whose refusal it is if it says so.
func noneIn(refusal string) error {
	const wanted = "a rule in parentheses, such as (bundle/version), as every refusal of Opgate has it"
	m := otherWebhook.FindStringSubmatch(refusal)
	switch {
	case m == nil:
		return fmt.Errorf("the text names no rule: looked for %s", wanted)
	case strings.HasSuffix(m[1], ".opgate.io"):
		return fmt.Errorf("the refusal of webhook %s names no rule: looked for %s; give the whole message",
			text.Name(m[1]), wanted)
	}
	return fmt.Errorf("the refusal is that of webhook %s, which is not Opgate's: looked for %s", text.Name(m[1]),
		wanted)
}

// unknown says that a rule does not exist, and which are spelled alike.
func unknown(list []rule, id string) error {
	const most = 5
	if near := alike(list, id); len(near) > 0 {
		return fmt.Errorf("there is no rule %s; did you mean %s?", text.Quote(id),
			strings.Join(near[:min(len(near), most)], ", "))
	}
	return fmt.Errorf(`there is no rule %s; "opgate explain" lists all`, text.Quote(id))
}

// alike returns the IDs that differ from a word in a few letters, as cobra suggests commands, else those that contain
// it.
func alike(list []rule, word string) (ids []string) {
	spellings := &cobra.Command{SuggestionsMinimumDistance: 3}
	for _, r := range list {
		spellings.AddCommand(&cobra.Command{Use: string(r.ID), Run: func(*cobra.Command, []string) {}})
	}
	if ids = spellings.SuggestionsFor(word); len(ids) > 0 || word == "" {
		return ids
	}
	_, name, _ := strings.Cut(word, "/")
	for _, r := range list {
		if strings.Contains(string(r.ID), word) || len(name) > 2 && strings.HasSuffix(string(r.ID), "/"+name) {
			ids = append(ids, string(r.ID))
		}
	}
	return ids
}
