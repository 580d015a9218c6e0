// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/miekg/dns"
)

// maxChain bounds how many aliases (CNAME) one answer follows.
const maxChain = 8

// zone is what the server answers from. It does not change after it was read, so any number of queries may use it at once.
type zone struct {
	origin string
	soa    *dns.SOA
	// nodes has every name of the zone in lower case, also those that only have names below them (RFC 4592, 2.2.2).
	nodes map[string]node
}

// node is what a name has, by type.
type node map[uint16][]dns.RR

// readZone reads a zone file (RFC 1035, 5) and refuses what the server could not answer rightly.
func readZone(path string) (*zone, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return parseZone(file, path)
}

func parseZone(text io.Reader, name string) (*zone, error) {
	parser := dns.NewZoneParser(text, ".", name)
	z := &zone{nodes: make(map[string]node)}
	var records []dns.RR
	for record, ok := parser.Next(); ok; record, ok = parser.Next() {
		if soa, is := record.(*dns.SOA); is {
			if z.soa != nil {
				return nil, fmt.Errorf("%s: a second SOA record, of %s", name, soa.Hdr.Name)
			}
			z.soa, z.origin = soa, key(soa.Hdr.Name)
		}
		records = append(records, record)
	}
	if err := parser.Err(); err != nil {
		return nil, err
	}
	if z.soa == nil {
		return nil, fmt.Errorf("%s: no SOA record", name)
	}
	for _, record := range records {
		if err := z.add(record); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	for owner, at := range z.nodes {
		if len(at[dns.TypeCNAME]) > 1 || len(at[dns.TypeCNAME]) == 1 && len(at) > 1 {
			return nil, fmt.Errorf("%s: %s has other records beside its CNAME (RFC 1034, 3.6.2)", name, owner)
		}
	}
	return z, nil
}

func (z *zone) add(record dns.RR) error {
	header := record.Header()
	owner := key(header.Name)
	switch {
	case header.Class != dns.ClassINET:
		return fmt.Errorf("%s: only class IN is served", owner)
	case !dns.IsSubDomain(z.origin, owner):
		return fmt.Errorf("%s does not belong to %s", owner, z.origin)
	case header.Rrtype == dns.TypeNS && owner != z.origin, header.Rrtype == dns.TypeDNAME:
		return fmt.Errorf("%s %s: delegations are not served", owner, dns.TypeToString[header.Rrtype])
	}
	at := z.node(owner)
	at[header.Rrtype] = append(at[header.Rrtype], record)
	for above, ok := parent(owner); ok && dns.IsSubDomain(z.origin, above); above, ok = parent(above) {
		z.node(above)
	}
	return nil
}

// node is that of a name, made if need be.
func (z *zone) node(owner string) node {
	if z.nodes[owner] == nil {
		z.nodes[owner] = make(node)
	}
	return z.nodes[owner]
}

// find is what a name has: its own, or what a wildcard gives it (RFC 4592, 3.3.1); nil if the name does not exist.
func (z *zone) find(name string) node {
	if at, ok := z.nodes[name]; ok {
		return at
	}
	for above, ok := parent(name); ok; above, ok = parent(above) {
		if _, exists := z.nodes[above]; exists {
			return z.nodes["*."+strings.TrimPrefix(above, ".")]
		}
	}
	return nil
}

// key is a name as the nodes are sorted by: fully qualified, lower case (RFC 4343).
func key(name string) string {
	return dns.CanonicalName(name)
}

// parent is the name without its first label.
func parent(name string) (string, bool) {
	next, end := dns.NextLabel(name, 0)
	if end {
		return ".", name != "."
	}
	return name[next:], true
}
