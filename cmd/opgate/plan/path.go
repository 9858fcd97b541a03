package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/blang/semver/v4"
	"github.com/operator-framework/operator-registry/alpha/declcfg"

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
	for _, c := range o.channels {
		if channel != "" && c.Name != channel {
			continue
		}
		found = true
		entries := c.Entries
		if from.name == "" && starting != "" {
			entries = slices.DeleteFunc(slices.Clone(entries),
				func(e declcfg.ChannelEntry) bool { return e.Name != starting })
		}
		chain, problem := order(c.Name, entries)
		if problem != "" {
			return nil, problem
		}
		for _, e := range chain {
			edge := byInstall
			if from.name != "" {
				edge = follows(e, from)
			}
			if edge != "" && next == nil && skippedBy(entries, e.Name) == "" {
				next = &hop{CSV: e.Name, Version: o.versionOf(e.Name), Channel: c.Name, From: from.name, Edge: edge}
				if edge == bySkipRange {
					next.SkipRange = e.SkipRange
				}
			}
		}
	}
	if !found {
		return nil, fmt.Sprintf("package %s has no channel %s: it has %s", text.Name(o.name), text.Name(channel),
			text.Names(o.channelNames(), maxNamed))
	}
	return next, ""
}

// maxNamed bounds the names in a sentence.
const maxNamed = 8

func (o *catalogPackage) channelNames() (names []string) {
	for _, c := range o.channels {
		names = append(names, c.Name)
	}
	return names
}

// follows returns the edge by which a version follows what is installed, "" for none.
func follows(e declcfg.ChannelEntry, from installed) string {
	switch {
	case e.Replaces == from.name:
		return byReplaces
	case slices.Contains(e.Skips, from.name):
		return bySkips
	case from.version == nil || e.SkipRange == "":
		return ""
	}
	if includes, err := semver.ParseRange(e.SkipRange); err == nil && includes(*from.version) {
		return bySkipRange
	}
	return ""
}

// order returns the versions of a channel in the order in which OLM prefers them, the newest first, or why OLM cannot
// order them: the chain of what each replaces. Those of it that another one skips are never installed.
func order(channel string, entries []declcfg.ChannelEntry) (chain []declcfg.ChannelEntry, problem string) {
	byName, followed := map[string]declcfg.ChannelEntry{}, map[string]bool{}
	for _, e := range entries {
		byName[e.Name] = e
	}
	for _, e := range entries {
		followed[e.Replaces] = true
		for _, name := range e.Skips {
			followed[name] = true
		}
	}
	var heads []string
	for _, e := range entries {
		if !followed[e.Name] {
			heads = append(heads, e.Name)
		}
	}
	switch {
	case len(entries) == 0:
		return nil, ""
	case len(heads) != 1:
		return nil, fmt.Sprintf("OLM does not order channel %s, and makes no plan in the namespace: it has %s (%s), want one",
			text.Name(channel), text.Count(len(heads), "head"), text.Names(heads, maxNamed))
	}
	visited := map[string]bool{}
	for e, ok := byName[heads[0]]; ok; e, ok = byName[e.Replaces] {
		if visited[e.Name] {
			return nil, fmt.Sprintf("OLM does not order channel %s, and makes no plan in the namespace: what %s replaces goes round",
				text.Name(channel), text.Name(heads[0]))
		}
		visited[e.Name] = true
		chain = append(chain, e)
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
	if from.name == "" {
		return "nothing is installed, and " + inChannel(channel) + " has no version to begin with"
	}
	var has, newestOf, elsewhere []string
	for _, c := range o.channels {
		chain, _ := order(c.Name, c.Entries)
		if slices.ContainsFunc(c.Entries, func(e declcfg.ChannelEntry) bool { return e.Name == from.name }) {
			has = append(has, c.Name)
		}
		if channel != "" && c.Name != channel {
			if next, _ := o.next(from, c.Name, ""); next != nil && next.CSV != from.name {
				elsewhere = append(elsewhere, text.Name(next.CSV)+" in channel "+text.Name(c.Name))
			}
			continue
		}
		if len(chain) > 0 && chain[0].Name == from.name {
			newestOf = append(newestOf, c.Name)
			continue
		}
		for _, e := range c.Entries {
			by := skippedBy(c.Entries, e.Name)
			if e.Name != from.name && by != "" && follows(e, from) != "" {
				return fmt.Sprintf("%s cannot leave channel %s: %s follows it, and is skipped by %s, which does not follow it",
					text.Name(from.name), text.Name(c.Name), text.Name(e.Name), text.Name(by))
			}
		}
	}
	if len(newestOf) > 0 {
		return text.Name(from.name) + " is the newest of channel " + text.Names(newestOf, maxNamed)
	}
	why := text.Name(from.name) + " cannot leave: no version of " + inChannel(channel) +
		" replaces or skips it, or has a skipRange with its version"
	if from.version == nil {
		why += ", which is not known"
	}
	if channel != "" && !slices.Contains(has, channel) {
		why += "; the channel does not have it"
	}
	if len(elsewhere) > 0 {
		why += "; next would be " + strings.Join(elsewhere[:min(len(elsewhere), maxNamed)], ", ")
	}
	return why
}

func skippedBy(entries []declcfg.ChannelEntry, name string) string {
	for _, e := range entries {
		if slices.Contains(e.Skips, name) {
			return e.Name
		}
	}
	return ""
}
