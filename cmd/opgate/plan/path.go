package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/blang/semver/v4"
	"github.com/operator-framework/operator-registry/pkg/api"

	"github.com/opgate/opgate/internal/text"
)

// The edges by which a version follows what is installed.
const (
	byReplaces  = "replaces"
	bySkips     = "skips"
	bySkipRange = "skipRange"
	byInstall   = "install"
)

// hop is a step of the path before it is judged.
type hop struct {
	CSV     string `json:"csv"`
	Version string `json:"version"`
	Channel string `json:"channel"`
	From    string `json:"from"`
	// Edge is replaces, skips, skipRange or install.
	Edge      string `json:"edge"`
	SkipRange string `json:"skipRange,omitempty"`
}

// path returns the steps that OLM takes from what is installed through a channel, "" for all of them, and why there is
// no further one. OLM makes a plan for the first version in its order that follows what is installed, whatever the gate
// decides on it. What a version needs of other operators counts as available.
func (o *catalogPackage) path(from installed, channel, starting string) (hops []hop, end string) {
	for seen := map[string]bool{from.name: true}; ; {
		next, problem := o.next(from, channel, starting)
		switch {
		case problem != "":
			return hops, problem
		case next == nil || next.CSV == from.name:
			return hops, o.deadEnd(from, channel)
		case seen[next.CSV]:
			return append(hops, *next), "it goes round: " + next.CSV + " was installed before"
		}
		seen[next.CSV] = true
		hops, from = append(hops, *next), o.stated(next.CSV)
	}
}

// next returns the version that OLM makes a plan for, nil for none, or why OLM resolves nothing. It is what
// getSubscriptionVariables and sortChannel do in OLM's resolver (pkg/controller/registry/resolver/resolver.go).
func (o *catalogPackage) next(from installed, channel, starting string) (*hop, string) {
	found := false
	var next *hop
	var names []string
	for _, c := range o.Channels {
		names = append(names, c.Name)
		if channel != "" && c.Name != channel {
			continue
		}
		found = true
		bundles := o.bundles[c.Name]
		if from.name == "" && starting != "" {
			bundles = slices.DeleteFunc(slices.Clone(bundles),
				func(b *api.Bundle) bool { return b.CsvName != starting })
		}
		chain, problem := order(c.Name, bundles)
		if problem != "" {
			return nil, problem
		}
		for _, b := range chain {
			edge := follows(b, from)
			if edge == "" || next != nil || skippedBy(bundles, b.CsvName) != "" {
				continue
			}
			next = &hop{CSV: b.CsvName, Version: b.Version, Channel: c.Name, From: from.name, Edge: edge}
			if edge == bySkipRange {
				next.SkipRange = b.SkipRange
			}
		}
	}
	if !found {
		return nil, fmt.Sprintf("package %s has no channel %s: it has %s", text.Name(o.Name), text.Name(channel),
			text.Names(names, maxNamed))
	}
	return next, ""
}

// maxNamed bounds the names in a sentence.
const maxNamed = 8

// follows returns the edge by which a version follows what is installed, "" for none.
func follows(b *api.Bundle, from installed) string {
	switch {
	case from.name == "":
		return byInstall
	case b.Replaces == from.name:
		return byReplaces
	case slices.Contains(b.Skips, from.name):
		return bySkips
	case from.version == nil || b.SkipRange == "":
		return ""
	}
	if includes, err := semver.ParseRange(b.SkipRange); err == nil && includes(*from.version) {
		return bySkipRange
	}
	return ""
}

// order returns the versions of a channel in the order in which OLM prefers them, the newest first, or why OLM cannot
// order them: the chain of what each replaces. Those of it that another one skips are never installed.
func order(channel string, bundles []*api.Bundle) (chain []*api.Bundle, problem string) {
	byName, followed := map[string]*api.Bundle{}, map[string]bool{}
	for _, b := range bundles {
		byName[b.CsvName], followed[b.Replaces] = b, true
		for _, name := range b.Skips {
			followed[name] = true
		}
	}
	var heads []string
	for _, b := range bundles {
		if !followed[b.CsvName] {
			heads = append(heads, b.CsvName)
		}
	}
	switch {
	case len(bundles) == 0:
		return nil, ""
	case len(heads) != 1:
		return nil, fmt.Sprintf("OLM does not order channel %s, and makes no plan in the namespace: it has %s (%s), want one",
			text.Name(channel), text.Count(len(heads), "head"), text.Names(heads, maxNamed))
	}
	for b := byName[heads[0]]; b != nil; b = byName[b.Replaces] {
		if slices.Contains(chain, b) {
			return nil, fmt.Sprintf("OLM does not order channel %s, and makes no plan in the namespace: what %s replaces goes round",
				text.Name(channel), text.Name(heads[0]))
		}
		chain = append(chain, b)
	}
	return chain, ""
}

func inChannel(channel string) string {
	if channel == "" {
		return "all channels"
	}
	return "channel " + text.Name(channel)
}

// deadEnd returns why no version follows what is installed.
func (o *catalogPackage) deadEnd(from installed, channel string) string {
	name, of := text.Name(from.name), inChannel(channel)
	if channel == "" {
		of = "any channel"
	}
	if from.name == "" {
		return "nothing is installed, and there is no version of " + of + " to begin with"
	}
	var newestOf, elsewhere []string
	inChannels := false
	for _, c := range o.Channels {
		if channel != "" && c.Name != channel {
			if next, _ := o.next(from, c.Name, ""); next != nil && next.CSV != from.name {
				elsewhere = append(elsewhere, text.Name(next.CSV)+" in channel "+text.Name(c.Name))
			}
			continue
		}
		if chain, _ := order(c.Name, o.bundles[c.Name]); len(chain) > 0 && chain[0].CsvName == from.name {
			newestOf = append(newestOf, c.Name)
			continue
		}
		for _, b := range o.bundles[c.Name] {
			inChannels = inChannels || b.CsvName == from.name
			by := skippedBy(o.bundles[c.Name], b.CsvName)
			if b.CsvName != from.name && by != "" && follows(b, from) != "" {
				return fmt.Sprintf("%s cannot leave channel %s: %s follows it, and is skipped by %s, which does not follow it",
					name, text.Name(c.Name), text.Name(b.CsvName), text.Name(by))
			}
		}
	}
	if len(newestOf) > 0 {
		return name + " is the newest of channel " + text.Names(newestOf, maxNamed)
	}
	why := name + " cannot leave: no version of " + of +
		" replaces or skips it, or has a skipRange with its version"
	if from.version == nil {
		why += ", which is not known"
	}
	if channel != "" && !inChannels {
		why += "; the channel does not have it"
	}
	if len(elsewhere) > 0 {
		why += "; next would be " + strings.Join(elsewhere[:min(len(elsewhere), maxNamed)], ", ")
	}
	return why
}

func skippedBy(bundles []*api.Bundle, csv string) string {
	for _, b := range bundles {
		if slices.Contains(b.Skips, csv) {
			return b.CsvName
		}
	}
	return ""
}
