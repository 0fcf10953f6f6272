"""How far an edit moves an input."""
