package inspect

import "regexp"

var mention = regexp.MustCompile(`\(([a-z]+/[a-z]+(?:-[a-z]+)*)\)`)

// Mentions returns what a text names as messages name rules, (kind/name), in its order. It need not be a rule.
func Mentions(text string) []string {
	var ids []string
	for _, m := range mention.FindAllStringSubmatch(text, -1) {
		ids = append(ids, m[1])
	}
	return ids
}
