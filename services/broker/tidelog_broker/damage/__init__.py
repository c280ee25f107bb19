"""What a broker does about data that is damaged, or nobody's."""
