package catalog

import (
	"github.com/opgate/opgate/controller/operatorpolicy/compliance"
	"github.com/opgate/opgate/olm"
	"github.com/opgate/opgate/rules"
)

// Offer tells, from memory, what a catalog offers of a package in a channel, or in the default one where that is
// empty. It is nil while that is not known; then it is being fetched.
func (c *Cache) Offer(pkg, channel string, catalog olm.Catalog) *rules.Offer {
	if catalog.Name == "" || catalog.Namespace == "" {
		return nil
	}
	return offerOf(c.Get(pkg, catalog), channel)
}

func offerOf(p *compliance.Package, channel string) *rules.Offer {
	if p == nil {
		return nil
	}
	if channel == "" {
		channel = p.DefaultChannel
	}
	for i := range p.Channels {
		c := &p.Channels[i]
		if c.Name != channel {
			continue
		}
		offer := &rules.Offer{Channel: channel, MinKubeVersion: c.MinKubeVersion, Versions: make([]rules.OfferedVersion, len(c.Entries))}
		for j, e := range c.Entries {
			offer.Versions[j] = rules.OfferedVersion{CSV: e.Name, Version: e.Version}
		}
		return offer
	}
	return nil
}
