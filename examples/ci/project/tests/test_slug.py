import unittest

from slug import slug


class Slug(unittest.TestCase):
    def test_words_are_joined(self):
        self.assertEqual(slug("A Fine  Day"), "a-fine-day")

    def test_nothing_stands_at_the_ends(self):
        self.assertEqual(slug("  (so what?) "), "so-what")

    def test_an_empty_name_stays_empty(self):
        self.assertEqual(slug(""), "")


if __name__ == "__main__":
    unittest.main()
