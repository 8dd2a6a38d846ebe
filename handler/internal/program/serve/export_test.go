package serve

import "net"

// Replace replaces the server's listener, so that the server can run in a synctest bubble.
func (s *Server) Replace(listener net.Listener) error {
	err := s.listener.Close()
	s.listener = listener
	return err
}
