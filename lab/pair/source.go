package pair

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"

	"github.com/slicefeed/slicefeed/lab/pki"
)

// Source is an inventory as the writers are to know it: an entry of SOURCES_FILE.
type Source struct {
	*Component

	Name string
	SAN  string
	CA   string // the file with the CA of its certificate

	// What it may say, in the words of SOURCES_FILE. None: the writers' default.
	CIDRs, Namespaces, Ports []string

	records string
}

// Default is the pair's own inventory as a source.
func (p *Pair) Default() *Source {
	return &Source{
		Component: p.Inventory, Name: "default", SAN: InventorySAN, CA: filepath.Join(p.Writers[0].dir, "peer-ca.crt"),
		CIDRs: []string{Subnet},
	}
}

// AddSource prepares a further inventory: a process with a CA, a certificate and an address of
// its own, that tells the records of a file and knows neither cluster. The caller ends it.
func (p *Pair) AddSource(name string, address netip.Addr, cidrs ...string) (*Source, error) {
	s := &Source{Name: name, SAN: InventorySAN + "-" + name, CIDRs: cidrs}
	if err := p.addSource(s, address); err != nil {
		return nil, fmt.Errorf("prepare inventory %s: %w", name, err)
	}
	return s, nil
}

func (p *Pair) addSource(s *Source, address netip.Addr) error {
	ca, err := pki.NewCA(s.Name + "'s side")
	if err != nil {
		return err
	}
	if s.Component, err = p.newFurther(address, "inventory-"+s.Name, p.Inventory.program); err != nil {
		return err
	}
	if s.CA, err = ca.Write(s.dir, "own-ca"); err != nil {
		return err
	}
	settings, err := serverSettings(s.Component, ca, p.CAs.Writer, s.SAN)
	if err != nil {
		return err
	}
	s.records = filepath.Join(s.dir, "nodes.json")
	settings["SOURCE_KIND"], settings["INVENTORY_FILE_PATH"], settings["SOURCE_POLL_INTERVAL"] = "file", s.records, "1s"
	settings["SECURED_SUBNET_CIDR"] = "10.0.0.0/8,fd00::/8" // the writers' fence is what is to be seen at work
	for name, value := range settings {
		s.Set(name, value)
	}
	return s.Tell()
}

// Record is a node as a source's file has it.
type Record struct {
	Name    string     `json:"name"`
	Address netip.Addr `json:"private_ip"`
	Ready   bool       `json:"ready"`
	Worker  bool       `json:"worker"`
}

// Tell makes the source say that these workers are ready, and that there are no others.
func (s *Source) Tell(workers ...*Worker) error {
	records := []Record{}
	for _, w := range workers {
		records = append(records, Record{Name: w.Name, Address: w.Address, Ready: true, Worker: true})
	}
	return s.TellRecords(records...)
}

// TellRecords makes the source say anything that its format can say.
func (s *Source) TellRecords(records ...Record) error {
	raw, err := json.Marshal(records)
	if err != nil {
		return err
	}
	return s.TellText(string(raw))
}

// TellText replaces the source's file by any text.
func (s *Source) TellText(text string) error { return pki.WriteFile(s.records, []byte(text)) }

// SourcesFile is the text of a SOURCES_FILE with these sources.
func SourcesFile(sources ...*Source) string {
	var text strings.Builder
	text.WriteString("sources:\n")
	for _, s := range sources {
		fmt.Fprintf(&text, "- {name: %s, address: %q, san: %q, caFile: %q, cidrs: [%s]",
			s.Name, port(s.Address, LinkPort), s.SAN, s.CA, quoted(s.CIDRs))
		if len(s.Namespaces) > 0 {
			fmt.Fprintf(&text, ", namespaces: [%s]", quoted(s.Namespaces))
		}
		if len(s.Ports) > 0 {
			fmt.Fprintf(&text, ", ports: [%s]", quoted(s.Ports))
		}
		text.WriteString("}\n")
	}
	return text.String()
}

// quoted is for IPv6 CIDRs: YAML takes their colons for something else.
func quoted(all []string) string {
	quoted := make([]string, len(all))
	for i, one := range all {
		quoted[i] = fmt.Sprintf("%q", one)
	}
	return strings.Join(quoted, ", ")
}
