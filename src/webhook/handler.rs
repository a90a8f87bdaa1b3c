//! Answers admission reviews: the shell around [`Admission`].
