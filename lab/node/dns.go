package node

import (
	"errors"
	"net"
	"net/netip"
	"strings"

	"golang.org/x/net/dns/dnsmessage"
)

// serveDNS answers for the names in hosts, and for no other, until it is closed.
func serveDNS(at netip.AddrPort, hosts map[string]netip.Addr) (*net.UDPConn, error) {
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
	if err != nil {
		return nil, err
	}
	go func() { // ends when conn is closed
		buffer := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFromUDPAddrPort(buffer)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if reply, err := answer(buffer[:n], hosts); err == nil {
				_, _ = conn.WriteToUDPAddrPort(reply, from) // whoever gets none asks again
			}
		}
	}()
	return conn, nil
}

func answer(raw []byte, hosts map[string]netip.Addr) ([]byte, error) {
	var m dnsmessage.Message
	if err := m.Unpack(raw); err != nil {
		return nil, err
	}
	m.Response, m.RecursionAvailable, m.Additionals = true, true, nil
	for _, q := range m.Questions {
		address, ok := hosts[strings.TrimSuffix(q.Name.String(), ".")]
		if !ok {
			m.RCode = dnsmessage.RCodeNameError
		} else if q.Type == dnsmessage.TypeA {
			m.Answers = append(m.Answers, dnsmessage.Resource{
				Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class, TTL: 5},
				Body:   &dnsmessage.AResource{A: address.As4()},
			})
		}
	}
	return m.Pack()
}
