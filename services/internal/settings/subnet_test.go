package settings

import "testing"

func TestSubnet(t *testing.T) {
	for _, tt := range []struct{ name, in, want string }{
		{"a CIDR", "10.0.1.0/24", "10.0.1.0/24"},
		{"an IPv6 CIDR", "fd00::/64", "fd00::/64"},
		{"first octets with a dot", "10.0.1.", "10.0.1.0/24"},
		{"first octets without a dot", "10.7", "10.7.0.0/16"},
		{"host bits", "10.0.1.7/24", ""},
		{"an IPv4 network in IPv6 form", "::ffff:10.0.0.0/120", ""},
		{"a word", "internal", ""},
		{"empty", "", ""},
		{"an address without a length", "10.0.1.7", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var s Subnet
			err := s.UnmarshalText([]byte(tt.in))
			if got := s.String(); (err == nil) != (tt.want != "") || err == nil && got != tt.want {
				t.Errorf("got %s, %v; want %q", got, err, tt.want)
			}
		})
	}
}
